"""The page's text, around its tables and figures."""

TEXT = """# Cutoff SGD with a learned predictor (Teng & Wood 2018, figures 2, 3 and 4)

Made by `make reproduce` (this part alone: `python -m reproductions cutoff`) from `scenarios/cutoff-sgd/` and the CSV files
beside this page. The clusters are simulated, since the authors' traces are not public: compute times are log-normal, with
noise that persists for some seconds on each worker and each node, rare delays, and nodes that become 2.03 times slower for some
hundred iterations at a time. **Calibrated**: the median (0.8595 s) and the slow-down, so that mean and deviation of the 3,000
recorded iterations of 158 workers are the paper's. Nothing was calibrated on a throughput, a prediction or a loss.

Every claim of the paper has a row (`reproductions/cutoff/claims.yaml`); in parentheses: from where on something that it says
without a number counts as so.
{criterion}

`dmm` is FRED's deep Markov model with weights shared among workers, `dmm-plain` the paper's model with a guide that does not
look ahead and a term for prediction, `dmm-printed` the paper's to the letter (docs/errata.md says why its guide cannot
predict). Each is trained once, on the recorded iterations; every rule takes the paper's cutoff, the c that maximises
c / E[x_(c)]. What is tested are other seeds of the same cluster, in closed loop: a rule sees only what its own cutoffs let it
see.

{facts}

## Figure 2: throughput through a change of regime

20 iterations to warm up, then 200 that count; node 2 of four is slow until iteration 61 begins. Three seeds; the figure
shows the first.

{throughput}

"Near" is {near} of the oracle, which maximises c / x_(c) knowing the iteration's times; "near again" when {steady} iterations
in a row are. The three numbers are the three seeds'.

![figure 2](cutoff-figure2.svg)

Above, each dot is a worker, each colour a node, and the line the cutoff that `dmm` chose.

How soon is each predictor near the maximum again? One iteration is enough for those that had learned that the node was slow:
the cutoff that leaves out 40 workers falls, after the change, among workers of all nodes, so the slow node's are seen to be
fast in that very iteration. Those that are near at once, at iteration 61, had waited for the slow node all along.

{rules}

Gradients per second, sum c / sum x_(c), of the oracle's. `best static` waits for {static}, the best of the training part.

![recovery](cutoff-recovery.svg)

## Figure 3: predicted order statistics

As in the paper, the model sees complete iterations here and predicts the next. The paper says nothing of the run-times of its
2,175 workers on 32 nodes (31 of 68, one of 67): simulated like the others, a node being slow a tenth of the time; the model is
trained on 1,000 iterations and tested on 200. What is shown is the deep model alone: where rounds held back preferred it, the
rule `dmm` elsewhere mixes in, or uses instead, what a hidden Markov model expects.

{profiles}

The throughput of the cutoff chosen is, of the oracle's, {ratios}.

![figure 3](cutoff-figure3.svg)

## Figure 4: convergence on MNIST

158 workers with batches of 64 (10,112 together) drawn with replacement, rates 0.64 and, asynchronous, 0.64 / 158; nodes become
slow by themselves, as in the training part above; 400 s of virtual time; three seeds, of which means are given. "Reaches a
loss": the loss at which `sync` ended with the same seed. **Not the paper's**: a 784-64-10 network in place of its 3-layer CNN
(one with two convolutions takes a core {each:.1f} s for a round, as measured over {measured:.0f} rounds: the paper's four
methods would take up to {hours:.1f} hours for each seed); the loss is on MNIST's 10,000 test images. `cutoff` is `dmm`, `order`
Elfving, `wild` asynchronous SGD; all but `wild` wait for c workers. `cutoff` waits for all in the first 20 iterations, while
`order` decides from the second on.

{convergence}

After 400 s every loss still falls, so what each method converges to in the end is not decided here: the losses are those
reached in this time. The paper shows no training with a static cutoff; here it waits for {static} workers. Its throughput in
figure 2 is lower, but the losses of the synchronous methods go with their numbers of updates (see the table), hardly with how
many gradients an update has: gradients per second, which the rules maximise, is not quite what learning needs.

![figure 4](cutoff-figure4.svg)

Plain steps:

{plain}

Adam, of which the paper only says that the method extends to it; rates {rates[adam]} and {rates[adam]} / 158, not tuned:

{adam}

## Not tried

{untried}

## Counts

{counts}
"""
