"""Objects of other libraries in scenarios: gradient transformations of optax, modules of Flax and Equinox, arrays and frames."""

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import cloudpickle
import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from flax import linen, nnx

import fred
from fred.components.component import settings_of
from fred.learning.keys import key_of
from fred.learning.models.adapters import Content, EquinoxObject, NNXObject
from fred.results.verify import verify
from fred.running.units import Unit
from tests.test_own_models import Linen

SETTINGS: dict[str, Any] = {
    "cluster": {"workers": 2, "compute": {"name": "constant", "seconds": 0.5}},
    "stop": {"updates": 6},
    "evaluate": {"points": 2},
}
RATE = {"algorithm": {"name": "asgd", "learning_rate": 0.125}}
DATA = {"name": "synthetic-classification", "examples": 64, "evaluation": 16, "features": 8, "classes": 4}
TASK = {"task": {"data": DATA, "model": "softmax", "batch_size": 4}}
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 8)).astype(np.float32), np.arange(50) % 4


def params(**settings: Any) -> Any:
    """Return the digest of the final parameters of a run."""
    (outcome,) = fred.run(SETTINGS | RATE | TASK | settings).outcomes
    return outcome.params_digest


def server(**options: Any) -> dict[str, Any]:
    return {"algorithm": {"name": "asgd", **options}}


def task(model: Any = "softmax", data: Any = None, **options: Any) -> dict[str, Any]:
    return {"task": {"data": DATA if data is None else data, "model": model, "batch_size": 4, **options}}


def linear() -> nnx.Linear:
    return nnx.Linear(8, 4, rngs=nnx.Rngs(7))


class TestOptax:
    def test_an_object_has_the_bits_of_its_name_and_its_rate_is_in_it(self):
        named = params(**server(optimizer="adam", learning_rate=2e-3))
        assert params(**server(optimizer=optax.adam(2e-3))) == named
        assert params(algorithm=fred.ASGD(optimizer=optax.adam(2e-3))) == named  # type: ignore[call-arg]

    def test_the_learning_rate_is_a_factor_of_the_updates(self):
        assert params(**server(optimizer=optax.adam(2e-3), learning_rate=0.5)) == params(
            **server(optimizer="adam", learning_rate=1e-3)
        )

    def test_objects_and_names_form_a_chain(self):
        clip, clipped = {"name": "clip", "max_delta": 0.01}, optax.clip(0.01)
        named = params(**server(optimizer=[clip, "sgd"], learning_rate=0.25))
        assert params(**server(optimizer=[clip, optax.sgd(0.25)])) == named
        assert params(**server(optimizer=[clipped, "sgd"], learning_rate=0.25)) == named
        assert params(**server(optimizer=optax.chain(clipped, optax.sgd(0.25)))) == named
        assert named != params(**server(optimizer="sgd", learning_rate=0.25))

    def test_an_outer_optimizer_has_its_rate_in_it_too(self):
        algorithm = {"name": "diloco", "learning_rate": 0.125}
        named = params(algorithm=algorithm | {"outer": {"name": "sgd", "momentum": 0.9, "nesterov": True}, "outer_rate": 0.5})
        assert params(algorithm=algorithm | {"outer": optax.sgd(0.5, momentum=0.9, nesterov=True)}) == named

    def test_des_loc_averages_the_moments_of_an_object(self):
        named = params(algorithm={"name": "des-loc", "learning_rate": 2e-3})
        assert params(algorithm={"name": "des-loc", "optimizer": optax.adam(2e-3)}) == named

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            (server(optimizer=optax.lbfgs()), "algorithm.optimizer: optax.chain cannot be used .* 'value'"),
            (server(optimizer=optax.contrib.schedule_free_sgd(0.1)), "its state holds the parameters to evaluate"),
            (server(optimizer=[optax.clip(1.0), "adam"]), "missing key `learning_rate`"),
            (server(optimizer=[optax.clip(1.0), "adam", "sgd"], learning_rate=1), "exactly one transformation must take"),
            (server(optimizer=linear(), learning_rate=1), "found nnx.Linear; expected a gradient transformation of optax"),
            ({"algorithm": {"name": "des-loc", "optimizer": optax.sgd(0.1)}}, "first and second moments"),
            ({"algorithm": {"name": "palsgd", "optimizer": optax.sgd(0.1)}}, "pulls need the learning rate"),
            ({"algorithm": {"name": "dbw", "smoothness": 1, "optimizer": optax.sgd(0.1)}}, "`smoothness` needs the learning"),
            (
                {"algorithm": {"name": "scaffold", "optimizer": optax.sgd(0.1)}} | task(division="by-label"),
                "use `optimizer: sgd` without momentum",
            ),
            ({"algorithm": optax.sgd(0.1)}, "found optax.chain; expected a name or a mapping .* an instance of `fred.Server`"),
        ],
    )
    def test_what_depends_on_names_is_refused(self, settings, words):
        with pytest.raises(fred.FredError, match=words):
            fred.scenario(SETTINGS | TASK | settings)

    def test_servers_with_parts_of_arrays_refuse_objects_that_may_need_whole_matrices(self):
        cluster = {"cluster": SETTINGS["cluster"] | {"servers": 2}}
        settings = SETTINGS | cluster | task({"name": "mlp", "hidden": [4]})
        protocol = {"name": "asynchronous", "clocks": "each"}
        with pytest.raises(fred.FredError, match=r"optimizer `optax\.chain` may treat arrays of two dimensions as matrices"):
            fred.run(settings | server(optimizer=optax.adam(1e-3)) | {"protocol": protocol})
        assert fred.run(settings | server(optimizer=optax.adam(1e-3)) | {"protocol": protocol | {"cut": "layers"}}).outcomes


class Fixed(fred.NNXModel):
    """A module whose parameters do not depend on the seed."""

    def module(self, rngs: nnx.Rngs) -> nnx.Module:
        return linear()


class FixedEquinox(fred.EquinoxModel):
    """The same with Equinox."""

    def module(self, key: jax.Array) -> equinox.Module:
        return equinox.nn.Linear(8, 4, key=jax.random.key(7))


class TestModules:
    @pytest.mark.parametrize(
        ("module", "model"),
        [
            (linear(), Fixed()),
            (equinox.nn.Linear(8, 4, key=jax.random.key(7)), FixedEquinox()),
            (Linen().module(), Linen()),
        ],
    )
    def test_a_module_has_the_bits_of_a_class_that_returns_it(self, module, model):
        assert params(**task(module), seeds=[3]) == params(**task(model), seeds=[3])

    def test_arrays_of_integers_in_a_module_of_equinox_stay_as_they_are(self):
        class Permuted(equinox.Module):
            weight: jax.Array
            order: jax.Array

            def __call__(self, x: jax.Array) -> jax.Array:
                return self.weight[self.order] * x[0]

        permuted = Permuted(jnp.arange(3.0), jnp.array([2, 1, 0]))
        model = EquinoxObject.wrap(permuted)
        params = model.init(jax.random.key(1), (1,), 3)
        assert [leaf.tolist() for leaf in jax.tree.leaves(params)] == [[0.0, 1.0, 2.0]]
        assert jax.jit(model.apply)(params, jnp.ones((2, 1))).tolist() == [[2.0, 1.0, 0.0]] * 2
        assert model.with_params(params).order.tolist() == [2, 1, 0]

    def test_modules_of_nnx_and_equinox_start_from_their_parameters_and_linen_from_the_seed(self):
        scenarios = [SETTINGS | RATE | task(model) | {"seeds": [1, 2]} for model in (linear(), linen.Dense(4))]
        (first, second), (third, fourth) = (fred.run(scenario).outcomes for scenario in scenarios)
        assert all(np.array_equal(outcome.initial["kernel"], linear().kernel[...]) for outcome in (first, second))
        assert third.initial.keys() == fourth.initial.keys()
        assert not np.array_equal(third.initial["params/kernel"], fourth.initial["params/kernel"])

    def test_the_trained_module_and_its_outputs_come_back(self):
        for module in (linear(), equinox.nn.Linear(8, 4, key=jax.random.key(1)), linen.Dense(4)):
            outcome = fred.run(SETTINGS | RATE | task(module))["asgd"]
            trained, inputs = outcome.module(), X[:5]
            scores = [trained(row) for row in inputs] if isinstance(module, equinox.Module) else trained(inputs)
            assert np.allclose(np.array(scores), outcome.predict(inputs), atol=1e-6)

    def test_dropout_draws_from_each_gradients_key_in_each_layer(self):
        rngs = nnx.Rngs(0)
        model = NNXObject.wrap(nnx.Sequential(nnx.Dropout(0.5, rngs=rngs), lambda x: x + 1, nnx.Dropout(0.5, rngs=rngs)))
        inputs, nothing = jnp.full((40, 50), 3.0), model.init(key_of(0), (50,), 50)
        output, repeated, other = (np.asarray(model.training(nothing, inputs, key_of(word))) for word in (1, 1, 2))
        assert np.array_equal(output, repeated) and not np.array_equal(output, other)
        passed, first = output > 0, output == 14  # 3 x 2 + 1, twice; where the first layer drops, 2 or 0
        assert passed.mean() == pytest.approx(0.5, abs=0.05) and first.mean() == pytest.approx(0.25, abs=0.05)
        assert np.array_equal(model.apply(nothing, inputs), inputs + 1)

    def test_later_changes_of_a_module_do_not_change_the_scenario(self):
        module = linear()
        scenario = fred.scenario(SETTINGS | RATE | task(module))
        before = fred.run(scenario)["asgd"].params_digest
        module.kernel[...] = jnp.zeros((8, 4))
        assert fred.run(scenario)["asgd"].params_digest == before
        assert scenario != fred.scenario(SETTINGS | RATE | task(module))
        assert scenario == fred.scenario(SETTINGS | RATE | task(linear()))

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            (task(linear(), replicas_start="apart"), "`replicas_start: apart` draws parameters"),
            (task(optax.sgd(1.0)), r"task.model: found optax.chain; expected a name .* `fred.Model`, or a module of Flax"),
            (task(data=linear()), r"task.data: found nnx.Linear; expected .* or arrays `\(X, y\)`"),
            (
                task(linear),
                "task.model: found a function; .*; to use a function, write a class derived from `fred.Model` with `init",
            ),
        ],
    )
    def test_objects_of_another_kind_are_refused(self, settings, words):
        with pytest.raises(fred.FredError, match=words):
            fred.scenario(SETTINGS | RATE | settings)

    def test_a_module_that_does_not_fit_the_data_is_refused(self):
        with pytest.raises(
            fred.FredError, match=r"run `asgd`: model `nnx.Linear` gives \[2, 3\] for 2 examples; expected \[2, 4\]"
        ):
            fred.run(SETTINGS | RATE | task(nnx.Linear(8, 3, rngs=nnx.Rngs(0))))


class TestContent:
    def test_equal_modules_have_equal_digests_and_others_differ(self):
        def digest(*layers: Any) -> str:
            return NNXObject.wrap(nnx.Sequential(*layers)).digest

        identity = digest(linear(), nnx.relu)
        assert identity == digest(linear(), nnx.relu) != ""
        changed = [digest(linear(), nnx.gelu), digest(linear()), digest(nnx.Linear(8, 4, rngs=nnx.Rngs(1)), nnx.relu)]
        assert len({identity, *changed}) == 4

    def test_functions_of_the_user_are_named_and_what_cannot_be_read_has_no_digest(self):
        double = lambda x: 2 * x  # noqa: E731
        model = NNXObject.wrap(nnx.Sequential(linear(), double))
        assert model.users == (double,) and model.digest
        content = Content()
        content.add([1, (object(),)])
        assert content.digest == ""

    def test_units_are_identified_by_the_content_or_not_at_all(self):
        def identity(**settings: Any) -> tuple[str, str]:
            unit = Unit("asgd", fred.scenario(SETTINGS | RATE | TASK | settings).runs["asgd"], 0)
            return unit.identity, unit.unknown

        assert identity(**task(linear(), (X, Y))) == identity(**task(linear(), (X.copy(), list(Y))))
        assert identity(**task(linear()))[0] != identity(**task(nnx.Linear(8, 4, rngs=nnx.Rngs(1))))[0]
        assert identity(**task(data=(X, Y)))[0] != identity(**task(data=(X + 1, Y)))[0]
        first, second = (identity(**server(optimizer=optax.sgd(0.1))) for _ in range(2))
        assert first != second and first[1] == "the content of `optax.chain` cannot be read"


def load(data: Any) -> fred.Dataset:
    run_task = fred.scenario(SETTINGS | RATE | task(data=data)).runs["asgd"].task
    assert run_task is not None
    result: fred.Dataset = run_task.data.load(0)
    return result


class TestArrays:
    def test_the_last_fifth_is_for_evaluation(self):
        data = load((X, Y))
        assert np.array_equal(data.train.inputs, X[:40]) and np.array_equal(data.evaluation.inputs, X[40:])
        assert np.array_equal(data.train.answers, Y[:40]) and np.array_equal(data.evaluation.answers, Y[40:])

    def test_arrays_lists_frames_and_series_are_the_same_data(self, tmp_path):
        expected = fred.arrays(tmp_path / "whole", (X[:40], Y[:40]), (X[40:], Y[40:])).load(0).digest
        train, evaluation = (X[:40], Y[:40]), (X[40:], Y[40:])
        frame, series = pd.DataFrame(X), pd.Series(Y)
        forms = [
            (X, Y),
            [X, Y],
            (X.tolist(), Y.tolist()),
            (frame, series),
            (jnp.asarray(X), Y),
            (*train, *evaluation),
            (train, evaluation),
            [list(train), list(evaluation)],
        ]
        assert {load(form).digest for form in forms} == {expected}

    def test_a_run_on_arrays_has_the_bits_of_a_run_on_their_file(self, tmp_path):
        file = fred.arrays(tmp_path / "whole", (X[:40], Y[:40]), (X[40:], Y[40:]))
        assert params(**task(data=(X, Y))) == params(**task(data=file))

    def test_later_changes_of_an_array_do_not_change_the_scenario(self):
        inputs = X.copy()
        scenario = fred.scenario(SETTINGS | RATE | task(data=(inputs, Y)))
        inputs[:] = 0
        assert scenario == fred.scenario(SETTINGS | RATE | task(data=(X, Y)))

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            ((pd.DataFrame(X).assign(kind="a"), Y), r"task.data: `X` holds text \('a'\); expected numbers; leave such columns"),
            ((pd.DataFrame(X).assign(kind=True), Y), r"task.data: `X` holds objects; .*: `X.astype\('float64'\)`"),
            ((X, Y.astype("M8[D]")), r"task.data: `y` holds datetime64\[D\]; expected numbers"),
            ((X, Y[:-1]), r"task.data: X and y are \[50, 8\] and \[49\]; expected as many answers as inputs"),
            ((X[:3], Y[:3]), "at least 5 of each"),
            (
                (np.where(X > 1, np.nan, X), Y),
                r"task.data: training data: some numbers are not finite: inputs\[\d+, \d+\] is nan, in \d+ of 40 examples",
            ),
            ((X, Y, X), r"task.data: expected arrays as \(X, y\), \(X, y, X_eval, y_eval\) or"),
            (([[1, 2], [3]], [0, 1]), r"task.data: expected arrays \(X, y\): setting an array element"),
            (
                pd.DataFrame(X),
                r"task.data: found a DataFrame; .*, or arrays `\(X, y\)`; .* `data=\(frame.drop\(columns='y'\), frame\['y'\]\)`",
            ),
        ],
    )
    def test_arrays_that_form_no_data_set_are_refused(self, data, words):
        with pytest.raises(fred.FredError, match=words):
            load(data)

    @pytest.mark.parametrize("form", [np.array, list, pd.Series, pd.Categorical, pd.DataFrame])
    def test_the_printed_line_turns_labels_into_the_numbers_of_their_order(self, form):
        """The labels sort as the class numbers do."""
        y = form(np.array(["ant", "bee", "cat", "dog"])[Y])
        with pytest.raises(fred.FredError, match=r"task.data: `y` holds text \('ant', 'bee'.*\); expected class") as refused:
            load((X, y))
        names = {"np": np, "y": y}
        exec(re.findall("`(.*?)`", str(refused.value))[-1], names)
        assert load((X, names["y"])).digest == load((X, Y)).digest

    def test_labels_of_both_parts_have_the_same_numbers(self, tmp_path):
        labels = np.array(["ant", "bee", "cat", "dog"])[Y]
        names: dict[str, Any] = {"np": np, "y": labels[:40], "y_eval": labels[40:]}
        for make in (
            lambda: load((X[:40], names["y"], X[40:], names["y_eval"])),
            lambda: fred.arrays(tmp_path / "labels", (X[:40], names["y"]), (X[40:], names["y_eval"])),
        ):
            with pytest.raises(fred.FredError, match="`y` holds text") as refused:
                make()
        exec(re.findall("`(.*?)`", str(refused.value))[-1], names)
        assert (names["y"] == Y[:40]).all() and (names["y_eval"] == Y[40:]).all()


OBJECTS = task(linear(), (X, Y)) | server(optimizer=optax.sgd(0.25))


class TestScenarios:
    def test_replaced_pickled_and_repeated_scenarios_are_equal(self):
        scenario = fred.scenario(SETTINGS | OBJECTS)
        assert scenario.replace() == scenario and hash(scenario.replace()) == hash(scenario)
        assert fred.scenario(settings_of(scenario.runs["asgd"])).runs == scenario.runs
        changed = scenario.replace({"task.model": "softmax", "task.data": (X + 1, Y), "stop.updates": 3})
        assert changed.replace({"task.model": linear(), "task.data": (X, Y), "stop.updates": 6}) == scenario
        copy = cloudpickle.loads(cloudpickle.dumps(scenario.runs["asgd"]))
        assert copy.task == scenario.runs["asgd"].task
        runs = [fred.run(SETTINGS | {"runs": {"asgd": {}}} | settings_of(run))["asgd"] for run in (scenario.runs["asgd"], copy)]
        assert runs[0].params_digest == runs[1].params_digest

    def test_objects_can_be_swept(self):
        grid = {
            "task.data": [(X, Y), (X + 1, Y)],
            "algorithm.optimizer": [optax.sgd(0.25), optax.adam(0.01), "sgd"],
            "algorithm.learning_rate": [1.0],
        }
        result = fred.run(SETTINGS | TASK | server() | {"sweep": {"over": grid}})
        assert len(set(result.summary["loss"])) == 6
        names = [outcome.name.partition("optimizer=")[2] for outcome in result.outcomes][:3]
        assert names == ["chain,learning_rate=1", "chain,learning_rate=1-2", "sgd,learning_rate=1"]
        assert "kind: optax.chain" in result.scenario.to_yaml() and len(result.sweep) == 6

    def test_pairs_of_values_can_be_swept(self):
        pairs = [{"task.data": (X, Y), "task.model": linear()}, {"task.data": (X, Y), "task.model": "softmax"}]
        assert len(fred.scenario(SETTINGS | TASK | RATE | {"sweep": {"over": pairs}}).runs) == 2

    @pytest.mark.parametrize(
        ("settings", "cure"),
        [
            (task(data=(X, Y)), r"`arrays`, .* `fred.arrays\(file, train, evaluation\)`"),
            (task(linear()), "`nnx.Linear`, .* a class derived from `fred.FlaxModel`, `fred.NNXModel`"),
            (server(optimizer=optax.adam(1e-3)), "`optax.chain`, .* optimizer: adam, learning_rate: 0.001"),
        ],
    )
    def test_files_are_refused_with_what_they_can_have(self, settings, cure, tmp_path):
        file = tmp_path / "mine.yaml"
        scenario = fred.scenario(SETTINGS | RATE | TASK | settings)
        with pytest.raises(fred.FredError, match=f"a file cannot hold {cure}"):
            scenario.to_yaml(file)
        assert not file.exists()
        file.write_text(scenario.to_yaml())
        with pytest.raises(fred.FredError, match=r"mine\.yaml:.*`name: object` describes an object of a program"):
            fred.load(file)

    def test_a_file_cannot_have_arrays(self, tmp_path):
        file = tmp_path / "mine.yaml"
        file.write_text(
            "task: {data: [[[0, 1], [1, 0]], [0, 1]], model: softmax}\nalgorithm: {name: asgd, learning_rate: 1}\n"
            "cluster: {workers: 2}\nstop: {updates: 2}\n"
        )
        with pytest.raises(fred.FredError, match=r"mine\.yaml:1: task\.data: expected a name or a mapping"):
            fred.load(file)


class TestResults:
    def test_a_stored_result_is_read_but_not_repeated(self, tmp_path):
        computed = fred.run(SETTINGS | OBJECTS, out=tmp_path / "made")
        read = fred.load_result(tmp_path / "made")
        assert read.summary.equals(computed.summary) and read.metrics.equals(computed.metrics)
        assert read.scenario.model_dump_json() == computed.scenario.model_dump_json()
        assert computed["asgd"].predict(X).shape == (50, 4)
        cure = "has only the description of this object: run it again from the program that has the object"
        for repeat in (
            lambda: fred.run(read.scenario),
            lambda: verify(tmp_path / "made"),
            lambda: read["asgd"].module(),
            lambda: read["asgd"].predict(X),
        ):
            with pytest.raises(fred.FredError, match=cure):
                repeat()
        with pytest.raises(fred.FredError, match="`name: object` describes an object"):
            read.scenario.replace({"stop.updates": 3})
        assert "run it again from the program that has them" in Path(tmp_path / "made" / "report.html").read_text()

    def test_results_of_des_loc_with_an_object_can_be_read(self, tmp_path):
        settings = SETTINGS | TASK | {"algorithm": {"name": "des-loc", "optimizer": optax.adam(2e-3)}}
        fred.run(settings, out=tmp_path / "made", report=False)
        assert len(fred.load_result(tmp_path / "made").outcomes) == 1

    @pytest.mark.slow
    def test_runs_whose_content_is_known_are_reused_and_others_computed_again(self, tmp_path):
        hashable, opaque = SETTINGS | RATE | task(linear(), (X, Y)), SETTINGS | TASK | server(optimizer=optax.sgd(0.25))
        for settings, reasons in ((hashable, ()), (opaque, ("asgd with seed 0 computed again: the content of `optax.chain`",))):
            out = tmp_path / f"{len(reasons)}"
            fred.run(settings, out=out, report=False)
            with pytest.warns(UserWarning) if reasons else nullcontext():
                result = fred.run(settings, out=out, report=False)
            assert result.reused == 1 - len(reasons)
            assert [line.startswith(start) for line, start in zip(result.recomputed, reasons, strict=True)] == [True] * len(
                reasons
            )

    @pytest.mark.slow
    def test_several_processes_compute_the_same(self, tmp_path):
        settings = SETTINGS | OBJECTS | {"seeds": [1, 2]}
        single, parallel = fred.run(settings), fred.run(settings, jobs=2, out=tmp_path / "two")
        assert single.summary.equals(parallel.summary)
