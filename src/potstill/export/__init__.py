"""A trained model in the formats it is deployed in, and the gates that each of them has to pass."""

from potstill.export.gates import judge, parity
from potstill.export.student import Exported, export_student

__all__ = ["Exported", "export_student", "judge", "parity"]
