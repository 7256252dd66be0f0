"""The page's text, around its tables and figures."""

TEXT = """# Cutoff SGD with a learned predictor (Teng & Wood 2018, figures 2, 3 and 4)

Made by `make reproduce` (this part alone: `python -m reproductions cutoff`) from `scenarios/cutoff-sgd/` and the CSV
files next to this page. The clusters are simulated, since the authors' traces are not public: compute times are
log-normal, with noise that persists for some seconds on each worker and each node, rare delays, and nodes that become
2.03 times slower for some hundred iterations at a time. **Calibrated**: the median (0.8595 s) and the slow-down, so that
mean and deviation of the 3,000 recorded iterations of 158 workers are the paper's. Nothing was calibrated on a
throughput, a prediction or a loss.

Every claim of the paper has a row (`reproductions/cutoff/claims.yaml`). Parentheses give the threshold for claims without a
number.
{criterion}

`dmm` is FRED's deep Markov model with weights shared among workers, `dmm-plain` the paper's model with a guide that does
not look ahead and a term for prediction, `dmm-printed` the paper's to the letter (docs/errata.md says why its guide
cannot predict). Each is trained once, on the recorded iterations; every rule takes the paper's cutoff, the c that
maximises c / E[x_(c)]. Rules are tested on other seeds of the same cluster, in closed loop: a rule sees only the times
that its own cutoffs let it see.

{facts}

## Figure 2: throughput through a change of regime

20 iterations to warm up, then 200 that count; node 2 of four is slow until iteration 61 begins. {seeds} seeds, {variant_seeds}
of them with `dmm-plain` and `dmm-printed`, each of which must be trained; the figure shows the first.

{throughput}

"Near" means at least {near} of the oracle, which knows the iteration's times and maximises c / x_(c). "Near again" means
that {steady} iterations in a row are; one number for each seed.

![figure 2](cutoff-figure2.svg)

Above, each dot is a worker, each colour a node, and the line the cutoff that `dmm` chose.

How soon is each predictor near the maximum again? One iteration is enough for predictors that had learned that the node
was slow. Their cutoff leaves out 40 workers. After the change it falls among workers of all nodes, so it shows that the
slow node's workers are fast. Predictors that are near at once, at iteration 61, had always waited for the slow node.

{rules}

Numbers are gradients per second, sum c / sum x_(c), relative to the oracle. `best static` waits for {static} workers, the
best number of the training part.

![recovery](cutoff-recovery.svg)

## Figure 3: predicted order statistics

As in the paper, the model sees complete iterations here and predicts the next. The paper does not report the run-times of
its 2,175 workers on 32 nodes (31 of 68, one of 67). They are simulated like the others, and a node is slow for a tenth of
the time. The model is trained on 1,000 iterations and tested on 200. The figure shows the deep model alone. Elsewhere the
rule `dmm` mixes in the expectations of a hidden Markov model, or uses these alone, if held-back rounds favour that.

{profiles}

The throughput of the chosen cutoff, relative to the oracle, is {ratios}.

![figure 3](cutoff-figure3.svg)

## Figure 4: convergence on MNIST

158 workers have batches of 64 (10,112 together), drawn with replacement. Rates are 0.64, and 0.64 / 158 for asynchronous
SGD. Nodes become slow by themselves, as in the training part above. Runs last 400 s of virtual time; numbers are means
over {learning_seeds} seeds, {fewer_seeds} of `static`, `oracle` and `wild` with Adam. "Reaches a loss" refers to the loss
at which `sync` ended with the same seed. **Not the paper's**: a 784-64-10 network replaces its 3-layer CNN, and the loss is
on MNIST's 10,000 test images. A network with two convolutions takes a core {each:.1f} s for a round, as measured over
{measured:.0f} rounds, so the paper's four methods would take up to {hours:.1f} hours for each seed. `cutoff` is `dmm`,
`order` is Elfving, and `wild` is asynchronous SGD. All but `wild` wait for c workers. `cutoff` waits for all workers in the
first 20 iterations, while `order` decides from the second on.

{convergence}

After 400 s every loss still falls. So the table has the losses after this time, not those at convergence. The paper shows
no training with a static cutoff; here it waits for {static} workers. Its throughput in figure 2 is lower. But the losses
of the synchronous methods follow their numbers of updates (see the table) and hardly the number of gradients in an
update. So the rules maximise gradients per second, which is not quite what learning needs.

![figure 4](cutoff-figure4.svg)

Plain steps:

{plain}

Adam, to which the method extends according to the paper; rates {rates[adam]} and {rates[adam]} / 158, not tuned:

{adam}

## Not tried

{untried}

## Counts

{counts}
"""
