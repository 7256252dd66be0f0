"""The page's text, around its tables and figures."""

TEXT = """# WAGMA-SGD (Li et al. 2021)

Made by `make reproduce` (this part alone: `python -m reproductions wagma`; without the training, `--timing`) from
`scenarios/wagma-sgd/` and the CSV files next to this page. Every claim of the paper has a row; they are in
`reproductions/wagma/paper.py` (numbers) and `claims.yaml`.

Numbers agree within {close}. For speed-ups the part above 1 must also agree, within {advantage}, because ratios near 1
are always close to each other. For steps per second without delays the time of a step beyond AD-PSGD's must agree, within
{advantage}: this time is communication.

{criterion}

{choices}

**Calibrated**:

- 0.621 s of computing per step of 128 images, on AD-PSGD's 1.61 steps per second without delays.
- {compute} s per step of 64 images, on the paper's 238 minutes for 130 epochs of AD-PSGD.
- 5 GB/s, on the throughput of the others without delays.

No ratio of figures 4, 5 and 10 was calibrated. **Taken from the published code**:

- Delays are drawn nearly independently, about two in each step.
- D-PSGD and SGP exchange models tensor by tensor, one after the other, in figures 4 and 10, and on one global clock in
  figure 7 and in the errors of figure 5.
- WAGMA averages globally at every 11th step. It and eager-SGD do so by recursive doubling, the others by a ring.

**Scaled down**: 40 to 120 s of virtual time, {time_seeds} seeds, one seed in figure 10, errors on MNIST (below).

## Without delays: 64 workers, total batch 8,192

{even}

Milliseconds are the time of a step beyond AD-PSGD's. WAGMA has the lowest throughput here and the third highest in the
paper. Its butterfly sends each model several times. At 5 GB/s that takes more than twice the time that the printed
throughput leaves.

## Figure 4: throughput with delays

{four}

{four_sizes}

Groups have about sqrt(P) workers; ablation 3 is one group of all. The dotted line of the figure is the throughput of 64
workers without communication and waiting.

![figure 4](wagma-figure4.svg)

**With the paper's own throughput without delays as communication**, each run's by itself:

{own}

**By bandwidth**, which the paper does not print: the same links for all runs, 64 workers, three seeds, bold where the two
agree.

{bandwidths}

Ablation 3 agrees at {ablation}, eager-SGD at {eager}. There WAGMA's throughput without delays disagrees: its
communication takes at least {longer:.0f} ms, and {paper_ms:.0f} ms in the paper. It is nearest at {nearest:g} GB/s, with
{shortest:.0f} ms, where both speed-ups are nearly 1. So no single bandwidth explains both kinds of numbers.

![speed-ups by bandwidth](wagma-bandwidths.svg)

**Reasons for the remaining differences**: one thing changed, 64 workers, one seed.

{four_changed}

- Ablation 3 and eager-SGD: the paper's 1.61 and 1.55 steps per second without delays leave 24 ms for WAGMA's
  communication. Three more phases of the butterfly at that speed cannot cost a fifth of a step. It does not matter which
  worker starts eager-SGD's allreduce, because few are late. At the 1.6 GB/s that D-PSGD needs in figure 5 (below) both
  agree, but then WAGMA has only 1.2 steps per second without delays.
- The published code averages a tensor as soon as its gradient is there. FRED does the same with `network.buckets` (50
  parts, behind the last two thirds of a gradient's time). Then a group of all costs no more than one of eight, at either
  speed, and eager-SGD is as fast as WAGMA. SGP agrees exactly, and D-PSGD no longer; their exchanges with neighbours are
  not hidden.
- SGP, local SGD, D-PSGD: the share of steps without delay. The published streams start equal. 97% of the first hundred
  steps delay a worker, but 88% of those after a thousand (87% with independent draws, as here).
- Not explained: about 6% between WAGMA and the runs that wait for all, if the printed throughputs without delays are
  taken literally.

Numbers in remarks like these that no table has were tried once, by hand.

## Figure 5: times, total batch 4,096

{five}

With the paper's own throughput without delays as communication:

{own_five}

D-PSGD, communicating twice, takes {minutes} minutes if its models pass at 1.6 GB/s (**calibrated** on these).
Communication that the backward pass does not hide then costs three times as much as the throughput without delays says.

## Figure 5 and ablations: errors

MNIST and a 784-32-10 network on 64 workers, batches of 16, 400 steps of each worker, {seeds} seeds (one at the lower
rate). All runs have the rate 0.8: of 0.2, 0.8 and 1.6 it is the best for local SGD. Orders are compared, not values.
Errors are those of the mean of all models, as after a global average, because a worker's own model has just made a step
with a small batch.

Two choices of FRED's decide orders here:

- **The spread of compute times** ("spread" in the tables of claims). FRED counts a worker as late if it arrives some
  microseconds after the first one (`docs/errata.md`, item 15). In the published code a spread of milliseconds makes no
  worker late. With equal compute times only delayed workers are late. With a spread nearly all are. Orders are judged
  with equal times, and with times spread by {late} ms (normal, a standard deviation of 1.5% of a step). The paper does
  not report its spread.
- **The order of D-PSGD's update** ("mixed first"). With `order: update-first`, as in figure 4, a worker applies its
  gradient and then mixes models. Lian et al. 2017 mix while the gradient is computed, and the published code afterwards
  but before the update. Both orders have the same errors, because the gradient is that of the model before mixing. Orders
  are judged with the update first, and with models mixed first.

{late_errors}

Runs that wait for all in each step do not depend on compute times. WAGMA does:

{spreads}

{errors}

Iterations until all are reached are counted on the graphs of the protocols. Errors at WAGMA's end are those of the mean
model, interpolated between two evaluations. A run that has ended before keeps its last error.

**Without delays** (the paper also doubles the batch; here it is the same), and other claims about accuracy, {seeds} seeds
each:

{even_errors}

D-PSGD "communicating twice" mixes twice with both neighbours (`reproductions/wagma/twice.py`). "Before the update" means
that the first exchange takes place while the gradient is computed. 130 epochs of AD-PSGD have as many more gradients, at
the same rate.

{without}

{ablations}

At a quarter of the rate the systems are indistinguishable: the mean of 64 models is as good for every kind of average. At
the higher rate models that differ have the better mean: groups of 4 and 8 have lower errors than one of 64, and than
local SGD. With a spread the mean model makes about half of a step in each step, and this advantage disappears.

![figure 5](wagma-figure5.svg)

## Figures 7 and 8: a Transformer on sentences in buckets

The paper shows the distribution of times as a picture only (figure 6), so the buckets are made up. **Calibrated**: their
distance from each other, on the time of local SGD, and 2.4 GB/s for models of 245 MB, on groups of 16. The other ratios
are predictions.

{seven}

{seven_sizes}

Figure 8's ten epochs have the same number of steps in all runs. So their times follow from the throughput of 16 workers:

{epochs}

AD-PSGD's exchanges cost nothing here, because they overlap with the gradients. The paper says of this model that "not
even AD-PSGD manages to overlap communication with computation". In the published code a thread exchanges models, but each
step also averages the whole model on the CPU, tensor by tensor and under locks. So five rows are judged under a further
choice: each step of AD-PSGD is longer by its exchange, there and back at 2.4 GB/s. WAGMA then trains {beside} times as fast
as AD-PSGD (1.10 in the paper), and is the fastest of 16. The orders of the two choices are opposite, so four rows count as
*not compared*; the ratio disagrees under both.

![figure 7](wagma-figure7.svg)

## Figure 10: episodes of very different lengths

**Calibrated** on figure 9: at least 1.7 s, median below 2 s, 43.5 s the longest of 5,000. Runs named `-once` send models
as a whole. The others send 74 tensors, one after the other, so a late worker holds up workers 74 edges away.

{ten}

{ten_sizes}

The three printed numbers of figure 9 leave the tail open, and among 1,024 workers the tail decides. With the same three
numbers (1,024 workers, one seed):

{ten_changed}

So figure 10's ratios are no test of the protocols, and count as *not compared*. Also, 200 s are seven steps of the runs
that wait for all. With this tail a ratio is good to 15%.

![figure 10](wagma-figure10.svg)

The experience steps are those of one worker. All 64 have 64 times as many, and 2.1 million of all would be 128 iterations
in ten hours.

## Not tried

{untried}

## Counts

{counts}

## Objections

**"Two choices of FRED's own decide the orders of errors."** They do. Earlier versions had equal compute times and models
mixed first only. They said that WAGMA's error is below those of Allreduce-SGD and local SGD, against the paper: with a
spread neither is decided. They said that D-PSGD's error is above WAGMA's and SGP's, with the paper: with the update first
neither is decided, and with a spread D-PSGD's error is below WAGMA's.

**"Numbers within 7% of ratios near 1 always agree."** The part of a speed-up above 1 now has to agree, too, and
throughputs without delays in the time that they leave for communication. eager-SGD, D-PSGD and WAGMA without delays
disagree for this reason.

**"Figure 10 is no test, and SGP's row agrees."** The three ratios of figure 10 are not compared any more.

**Which spread did the paper's machines have?** Not reported. FRED's late workers are those of whole models, the published
code's those of single tensors, so no spread in FRED is exactly the paper's.

**Orders on MNIST need not be those on ImageNet.** This stands: 90 epochs of ImageNet are out of reach here.
"""
