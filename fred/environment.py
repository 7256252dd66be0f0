"""The numeric environment: what, besides the scenario, decides the bits. Set before jax loads; recorded with every result.

Measured reasons for each setting stand in docs/architecture.md, "Numeric environment".
"""

import importlib.metadata
import os
import platform
import sys
import warnings

_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "scipy", "simpy")
_ISA_FLAG = "--xla_cpu_max_isa"


def prepare() -> None:
    """Fix the thread partition, the instruction set and the platform that jax will use; warn if jax is already loaded."""
    wanted = _wanted()
    if "jax" in sys.modules:
        differing = [f"{name}={value}" for name, value in wanted.items() if os.environ.get(name) != value]
        if differing:
            warnings.warn(
                f"jax was imported before fred, without {', '.join(differing)}: digests may differ from FRED's elsewhere. "
                "Import fred first, or set these variables before starting Python.",
                stacklevel=3,
            )
        return
    os.environ.update(wanted)


def describe() -> dict[str, str]:
    """Everything that identifies the numeric environment, as recorded in a manifest. Imports jax."""
    import jax

    facts = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "system": platform.system(),
    }
    facts |= {package: importlib.metadata.version(package) for package in _PACKAGES}
    facts |= {name: os.environ.get(name, "") for name in ("PJRT_NPROC", "XLA_FLAGS")}
    facts["backend"] = jax.default_backend()
    for option in ("jax_enable_x64", "jax_default_matmul_precision"):
        facts[option] = str(getattr(jax.config, option))
    return facts


def _wanted() -> dict[str, str]:
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith(_ISA_FLAG)]
    if platform.machine() in ("x86_64", "AMD64"):
        flags.append(f"{_ISA_FLAG}=AVX")  # the last without fused multiply-add
    return {
        "PJRT_NPROC": os.environ.get("FRED_THREADS", "1"),
        "XLA_FLAGS": " ".join(flags),
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu"),
    }
