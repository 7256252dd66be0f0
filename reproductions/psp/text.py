"""The page's text, around its tables and figures."""

TEXT = """# PSP-SGD: late replies

Made by `make reproduce` (this part alone: `python -m reproductions psp`; without the training, `--timing`) from
`scenarios/psp-sgd/` and the CSV files next to this page. Every claim of the paper has a row
(`reproductions/psp/claims.yaml`). {criterion}

## Times

32 workers and 32 machines with servers, 0.16 % of the servers' replies 4 s late. Table 1 states no unit, so ratios are
compared; they agree within 0.03. **Scaled down**: {updates} updates, {time_seeds} seeds
({other_seeds} with time-outs and with fewer machines), timing only.

{timing}

**Calibrated**, on the last two ratios of table 1 under the paper's rule: two blocks on each machine, and 8.3 s for a
gradient. The paper says that "each server is responsible for several blocks", without their number. The other ratios are
predictions. A worker that receives one block late stays late, because it never catches up. As soon as more than four
workers are late, the servers wait again. Workers drop blocks of versions older than their own, as in the paper's
algorithm 1. If they take every block newer than their own, the ratios are {kept}.

The paper's own numbers differ on the cost of late replies (docs/errata.md, item 48). If partial synchronisation takes
as long as `sync` does without them, `sync` takes {reduced} times as long with them in table 1, not 1.30. FRED's {prolonged}
lies between.

![run times](psp-table1.svg)

## Errors

**Scaled down**: MNIST and one hidden layer replace CIFAR-10 and ResNet-50. 8 workers and 20 servers replace 32 and 32: so
the shares to wait for are whole numbers (7 and 5 workers, 18 and 15 servers). Runs have {error_updates} updates, and
{error_seeds} seeds, {spread_seeds} where all replies differ (± half of the 95% interval; with fewer than five seeds the
range). Momentum and the decay of rates are the paper's; there is no weight decay. Only the order can be compared. "Almost
the same" is within {margin} of `sync`: the paper uses these words for errors that differ by as much.

{ends}

The last two runs have c and b alone. If only the rare late replies differ, b decides about one block in twenty pulls. In
the last column, which the paper does not have, every reply takes another time (log-normal, median 0.1 s). A worker that
waits for 75% of the blocks then never has the slowest quarter.

{learning}

The time of the last row is that of table 1: here, where 8 workers wait for each other, waiting in part takes {quicker}
less.

![errors](psp-figure3.svg)

## Not tried

{untried}

## Counts

{counts}
"""
