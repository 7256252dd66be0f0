"""The page's text, around its tables and figures."""

TEXT = """# PSP-SGD: late replies

Made by `make reproduce` (this part alone: `python -m reproductions psp`; without the training, `--timing`) from
`scenarios/psp-sgd/` and the CSV files beside this page. Every claim of the paper has a row (`reproductions/psp/claims.yaml`).
{criterion}

## Times

32 workers and 32 machines with servers, 0.16 % of the servers' replies 4 s late. Table 1 states no unit, so ratios are
compared; they agree within 0.03. **Scaled down**: {updates} updates, {time_seeds} seeds, timing only.

{timing}

**Calibrated**, on the last two ratios of table 1 under the paper's rule: two blocks on each machine ("each server is
responsible for several blocks"; how many, it does not say), and 8.3 s for a gradient. The others are then predictions: a worker
that got one block late stays late, because it never catches up, and as soon as more than four are late the servers wait again.
Workers drop blocks of versions older than their own, as in the paper's algorithm 1; where they take every block newer than what
they have, the ratios are {kept}.

The paper's own numbers differ on what late replies cost: if partial synchronisation takes as long as `sync` does without them,
table 1 has `sync` take {reduced} times as long with them, not 1.30. FRED's {prolonged} lies between.

![run times](psp-table1.svg)

## Errors

**Scaled down**: MNIST and one hidden layer in place of CIFAR-10 and ResNet-50, 8 workers and 20 servers in place of 32 and
32, of which the shares waited for are whole numbers (7 and 5 workers, 18 and 15 servers), {error_updates} updates,
{error_seeds} seeds with late replies, {fewer_seeds} otherwise (± half of the 95% interval; with fewer than five seeds the
range); momentum and how rates fall as in the paper, no weight decay. Only the order can be compared. "Almost the same" is
within {margin} of `sync`, the paper's own distance between errors of which it says so.

{ends}

The last two runs have c and b by themselves. Where replies differ only by the rare late ones, b decides over one block in
twenty pulls. In the last column, which the paper does not have, every reply takes another time (log-normal, median 0.1 s), so
that who waits for 75% of the blocks never has the slowest quarter.

{learning}

The time of the last row is that of table 1: here, where 8 workers wait for each other, waiting in part takes {quicker} less.

![errors](psp-figure3.svg)

## Not tried

{untried}

## Counts

{counts}
"""
