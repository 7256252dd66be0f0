"""What was counted, to look at: pictures, tables, and a result on one page of HTML."""
