"""What a scheduler keeps of the jobs that it launched itself."""

from torchx.schedulers.local_scheduler import _LocalAppDef
from torchx.specs import AppState


class Lifeline:
    """Counts how often it is let go."""

    cut = False

    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class LetGoMeanwhile(_LocalAppDef):
    """An app that another thread lets go while the job is being ended, as one that follows logs."""

    def kill(self) -> None:
        self.set_state(AppState.CANCELLED)
        self.close()


def test_two_may_let_go_of_a_job_at_once() -> None:
    lifeline = Lifeline()
    app = LetGoMeanwhile("job-x", "/logs", lifeline=lifeline)
    app.close()
    assert lifeline.closed > 0
    app.close()
    assert not app.cut_off
