"""What the kernel of every page begins with: `%%bash` and `%%writefile` that say no more than they have to."""


def _begin():  # whatever is imported here, examples do not see
    import os
    import subprocess
    from pathlib import Path

    from IPython.core.magic import register_cell_magic

    @register_cell_magic
    def bash(line, cell):
        """Run commands until one fails, which ends the page; what they print is plain, and one piece."""
        plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR")}
        command = ["bash", "-e", "-o", "pipefail", "-c", cell]
        done = subprocess.run(command, env=plain | {"TERM": "dumb"}, capture_output=True, text=True)
        print(done.stdout, end="")
        if done.returncode:
            raise RuntimeError(done.stderr)

    @register_cell_magic
    def writefile(line, cell):
        """The file of this name."""
        Path(line.strip()).write_text(cell, encoding="utf-8")


_begin()
del _begin
