"""What the command line says when it refuses: exactly one line, exit code 2."""

from rec.cli import main


def refusal(capsys, *argv: object) -> str:
    """Run a command that must be refused and return its one error line."""
    capsys.readouterr()
    assert main([str(a) for a in argv]) == 2
    found = capsys.readouterr()
    errors = [line for line in found.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, found.err
    assert "Traceback" not in found.err + found.out
    return errors[0]
