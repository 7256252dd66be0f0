"""The site: Sphinx with furo; MyST reads the pages, MyST-NB executes their examples. `make docs` builds it."""

import contextlib
import hashlib
import inspect
import io
import os
import re
import sys
from pathlib import Path

import fred  # first: it fixes what decides the bits
from fred.commands import cli, documentation, reference
from fred.components import registry
from fred.components.component import Component

HERE = Path(__file__).parent
_GENERATED = re.compile(r"reference/index\.md#([a-z-]+)(?:\.([\w-]+))?(?=\))")
_STAR = re.compile(r"(?<![\\*])\*(?!\*)(?=[^`]*(?:`[^`]*`[^`]*)*$)")  # not within `code`

project = "FRED"
author = "the authors of FRED"
copyright = f"{author}; Apache-2.0"
version = release = fred.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_build", "pypi.md", "**.ipynb_checkpoints"]
html_theme = "furo"
html_title = "FRED"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]

myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # of rules, which are no language

# examples: executed when their page or FRED has changed, each page in a folder of its own
SOURCES = sorted(
    path for path in Path(fred.__file__).parent.rglob("*") if path.suffix in (".py", ".pyi", ".yaml", ".npz", ".csv")
)
DIGEST = hashlib.sha256(
    b"".join(path.read_bytes() for path in [HERE / "examples.py", HERE.parent / "pytest_fred.py", *SOURCES])
).hexdigest()
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / "executed" / DIGEST[:16])
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_output_stderr = "remove"  # progress
nb_ipywidgets_js = {}  # sliders do nothing without a kernel, and their scripts come from other servers

# the face of Python
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = True

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # so that examples find `fred`
os.environ["IPYTHONDIR"] = str(HERE / "_build" / "ipython")  # where kernels look for what they begin with
_begins = HERE / "_build" / "ipython" / "profile_default" / "startup" / "examples.py"
_begins.parent.mkdir(parents=True, exist_ok=True)
_begins.write_bytes((HERE / "examples.py").read_bytes())
os.environ["COLUMNS"] = "96"  # of tables in examples: as many as fit in letters of 12 px


def _write(name: str, text: str) -> None:
    """A generated page; left alone where it is the same, so that it need not be read again."""
    path = HERE / "reference" / f"{name}.md"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _command_line() -> str:
    """Every command's own help."""
    of_all = _help()
    said = {"": of_all} | {name: _help(name) for name in re.findall(r"^    ([a-z][\w-]*)", of_all, re.MULTILINE)}
    sections = [f"## fred {name}\n\n```text\n{text}```\n" if name else f"```text\n{text}```\n" for name, text in said.items()]
    return "\n".join(["# Command line\n\nWhat `fred --help` and `fred COMMAND --help` print.\n", *sections])


def _help(*words: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    return said.getvalue()


def _python() -> str:
    """Everything that `fred` exports, from docstrings."""
    head = "# Python\n\n`import fred`: all that is public, and all that systems of one's own need.\n"
    return "\n".join(
        [head, *(f"## {name}\n\n```{{eval-rst}}\n{_directive(name)}\n```\n" for name in sorted(dir(fred), key=str.lower))]
    )


def _directive(name: str) -> str:
    public = getattr(fred, name)
    if inspect.ismodule(public):
        return f".. automodule:: {public.__name__}"
    if inspect.isclass(public) and public.__module__.startswith("fred."):
        inherited = "\n   :inherited-members: Protocol" if getattr(public, "_is_protocol", False) else ""
        return f".. autoclass:: fred.{name}\n   :members:{inherited}\n   :exclude-members: model_config, model_fields"
    if inspect.isfunction(public):
        return f".. autofunction:: fred.{name}"
    return f".. autodata:: fred.{name}\n   :no-value:"


def _no_signature(app, what, name, thing, options, signature, returned):
    """Options of components are in their tables; pydantic's signature would only repeat them."""
    return ("", None) if what == "class" and issubclass(thing, Component) else None


def _no_emphasis(app, what, name, thing, options, lines):
    """Docstrings are plain text with `code`: a star outside of it is a star."""
    lines[:] = [line if line.lstrip().startswith((">>>", "...")) else _STAR.sub(r"\*", line) for line in lines]


def _to_generated_pages(app, name, source):
    """Links to `reference/index.md#PAGE.HEADING` lead to generated pages here, and to the index where these are missing."""
    source[0] = _GENERATED.sub(lambda link: f"reference/{link[1]}.md" + (f"#{link[2]}" if link[2] else ""), source[0])


def setup(app) -> None:
    """Write the generated pages before Sphinx looks for pages."""
    for kind in registry.REGISTRY:
        _write(registry.NAMESPACES[kind], reference.page(kind))
    _write("optimizers", documentation.optimizers_page())
    _write("command-line", _command_line())
    _write("python", _python())
    app.connect("source-read", _to_generated_pages)
    app.connect("autodoc-process-signature", _no_signature)
    app.connect("autodoc-process-docstring", _no_emphasis, priority=1000)  # after napoleon
