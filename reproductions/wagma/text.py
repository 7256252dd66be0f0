"""The page's text, around its tables and figures."""

TEXT = """# WAGMA-SGD (Li et al. 2021)

Made by `make reproduce` (this part alone: `python -m reproductions wagma`; without the training, `--timing`) from
`scenarios/wagma-sgd/` and the CSV files beside this page. Every claim of the paper has a row; they are in
`reproductions/wagma/paper.py` (numbers) and `claims.yaml`.

Numbers agree within {close}.
{criterion}

**Calibrated**: 0.621 s of computing per step of 128 images (AD-PSGD's 1.61 steps per second without delays), {compute} s per
step of 64 (the paper's 238 minutes for 130 epochs of AD-PSGD), 5 GB/s (the throughput of the others without delays). Of
figures 4, 5 and 10 no ratio was calibrated. **Taken from the published code**: delays are drawn nearly independently, about two
in each step; D-PSGD and SGP exchange models tensor by tensor, one after the other, in figures 4 and 10, and on one global clock
in figure 7 and the errors of figure 5; WAGMA averages globally at every 11th step, and it and eager-SGD do so by recursive
doubling, the others by a ring. **Scaled down**: 40 to 120 s of virtual time, three seeds, but one in figure 10; errors on MNIST
(below).

## Without delays: 64 workers, total batch 8,192

{even}

## Figure 4: throughput with delays

{four}

{four_sizes}

Groups have about sqrt(P) workers; ablation 3 is one group of all. The dotted line of the figure is what 64 workers would do
without communication and waiting.

![figure 4](wagma-figure4.svg)

**With the paper's own throughput without delays as communication**, each run's by itself:

{own}

**What explains what is left**: one thing changed, 64 workers, one seed.

{four_changed}

* Ablation 3 and eager-SGD: the paper's 1.61 and 1.55 steps per second without delays leave 24 ms for WAGMA's communication.
  Three more phases of the butterfly at that speed cannot cost a fifth of a step, nor does it matter who starts eager-SGD's
  allreduce, as few are late. At the 1.6 GB/s that D-PSGD needs in figure 5 (below) both agree, but then WAGMA does only 1.2
  steps per second without delays. The published code averages a tensor as soon as its gradient is there. Where FRED does so,
  too (`network.buckets`: in 50 parts, behind the last two thirds of a gradient's time), a group of all costs nothing more than
  one of eight, at either speed, and eager-SGD is as fast as WAGMA: what hides communication does not tell them apart. SGP then
  agrees exactly, and D-PSGD no longer; their exchanges with neighbours are not hidden.
* SGP, local SGD, D-PSGD: how often nobody is delayed. The published streams start equal, and 97% of the first hundred steps
  delay somebody, but 88% of those after a thousand (87%: independent draws, as here).
* Not explained: about 6% between WAGMA and those that wait for all, if the printed throughputs without delays are taken
  literally.

Numbers in remarks like these that no table has were tried once, by hand.

## Figure 5: times, total batch 4,096

{five}

With the paper's own throughput without delays as communication:

{own_five}

D-PSGD, communicating twice, takes {minutes} minutes where its models pass at 1.6 GB/s (**calibrated** on these): what it
sends beside what the backward pass hides then costs three times what the throughput without delays says.

## Figure 5 and ablations: errors

MNIST and a 784-32-10 network on 64 workers, batches of 16, 400 steps of each, {seeds} seeds (one at the lower rate). One rate
for all, 0.8: of 0.2, 0.8 and 1.6 the one at which local SGD does best. The order is compared, not the values. The mean of all
models is looked at, as after a global average: a worker's own has just made a step with a small batch by itself.

{late_errors}

{errors}

Iterations until all are reached are counted on the graphs of the protocols. Errors when WAGMA ends are those of the mean model,
between two looks in proportion; who has ended before keeps its last.

**Without delays** (the paper doubles the batch, too, here it is the same), and what else is said of accuracy, three seeds each:

{even_errors}

D-PSGD "communicating twice" mixes with both neighbours once while the gradient is being computed and once more after it
(`reproductions/wagma/twice.py`); 130 epochs of AD-PSGD are as many more gradients, at the same rate.

{without}

{ablations}

At a quarter of the rate only noise is left to tell the systems apart: the mean of 64 models is as good however they were
averaged. At the higher one models that differ have the better mean: groups of 4 and 8 surpass one of 64, and local SGD.
WAGMA's error depends on who counts as late: were compute times spread by 5 ms, all but the first worker would be, its mean
model would make half of a step in each, and the error at rate 0.2 be 0.083 (`docs/errata.md`, item 15).

![figure 5](wagma-figure5.svg)

## Figures 7 and 8: a Transformer on sentences in buckets

The paper shows the distribution of times as a picture only (figure 6): the buckets are made up. **Calibrated**: how far
they are apart, on the time of local SGD, and 2.4 GB/s for models of 245 MB, on groups of 16; the other ratios are
predictions.

{seven}

{seven_sizes}

Figure 8's ten epochs have as many steps for all, so that their times go with the throughput of 16 workers:

{epochs}

AD-PSGD's exchanges cost nothing here, as they go on beside the gradients. The paper says of this model that "not even
AD-PSGD manages to overlap communication with computation". Where each step is longer by its exchange, there and back, WAGMA
trains {beside} times as fast as AD-PSGD (1.10 in the paper), and is the fastest of 16.

![figure 7](wagma-figure7.svg)

## Figure 10: episodes of very different lengths

**Calibrated** on figure 9: at least 1.7 s, median below 2 s, 43.5 s the longest of 5,000. Runs named `-once` send models as
a whole, the others 74 tensors, one after the other: who is late holds up those so many edges away.

{ten}

{ten_sizes}

The three numbers that figure 9 has in print leave the tail open, and among 1,024 workers the tail is all that counts. With
the same three numbers (1,024 workers, one seed):

{ten_changed}

So figure 10's ratios are no test of the protocols. Besides, 200 s are seven steps of those who wait for all: with so heavy a
tail such a ratio is good to 15%.

![figure 10](wagma-figure10.svg)

The experience steps are those of one worker: of all 64 they would be 64 times as many, and 2.1 million of all would be 128
iterations in ten hours.

## Not tried

{untried}

## Counts

{counts}
"""
