"""What ranks run; imported by name in each rank's process, so it loads neither Spark nor Horovod."""

from rec.core.tables import Evaluation
from rec.launch.ranks import HorovodRanks
from rec.train.checkpoint import Checkpoint
from rec.train.evaluation import evaluate_checkpoint
from rec.train.records import EvaluationJob, TrainingJob
from rec.train.trainer import train


def train_program(ranks: HorovodRanks, job: TrainingJob) -> Checkpoint | None:
    """Train; rank 0 returns the best checkpoint."""
    checkpoint = train(ranks, job, ranks.report)
    return checkpoint if ranks.rank == 0 else None


def evaluate_program(ranks: HorovodRanks, job: EvaluationJob) -> Evaluation | None:
    """Score days; rank 0 returns the figures."""
    evaluation = evaluate_checkpoint(ranks, job, ranks.report)
    return evaluation if ranks.rank == 0 else None
