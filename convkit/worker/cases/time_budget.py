"""The time budget of a verification: predicts a case's duration from those that ran."""

from collections.abc import Sequence

# These run regardless of the budget: their sizes are small or typical, and they reveal the most
# common mistakes.
ALWAYS_RUN = ("example", "smallest", "padded", "masked-row")


class Budget:
    """The budget in seconds of inference, and a model of a case's duration.

    A case's duration is assumed to be linear in its cost (elements of its inputs and outputs):
    proportional while only one cost has been measured, the least-squares line afterwards. Attention
    grows faster, so a prediction far above the measured sizes is too low, and one case may overrun;
    the next is then omitted.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self._measured: list[tuple[int, float]] = []

    def record(self, cost: int, seconds: float) -> None:
        """Record a case's duration."""
        self.spent += seconds
        self._measured.append((cost, seconds))

    def predict(self, cost: int) -> float:
        """Return a case's predicted duration in seconds; 0 without measurements."""
        if not self._measured:
            return 0.0
        costs = [cost for cost, _ in self._measured]
        times = [seconds for _, seconds in self._measured]
        mean_cost, mean_time = sum(costs) / len(costs), sum(times) / len(times)
        spread = sum((one - mean_cost) ** 2 for one in costs)
        if spread == 0.0:
            return mean_time * cost / max(mean_cost, 1.0)
        slope = sum((one - mean_cost) * (time - mean_time) for one, time in self._measured) / spread
        return max(0.0, mean_time + max(0.0, slope) * (cost - mean_cost))

    def refusal(self, name: str, cost: int) -> str | None:
        """Return why a case is omitted, or None if it runs."""
        if self.seconds is None or name in ALWAYS_RUN or not self._measured:
            return None
        remaining = self.seconds - self.spent
        predicted = self.predict(cost)
        if predicted <= remaining:
            return None
        return (
            f"would take about {predicted:.2g} s; {max(0.0, remaining):.2g} s of the budget of"
            f" {self.seconds:g} s (verify.budget) remain"
        )


def running_order(names: Sequence[str]) -> list[int]:
    """Return the order, as indices, in which cases run under a budget, starting with those that
    always run.

    The predictions for the others are then based on more than the smallest case.
    """
    return sorted(range(len(names)), key=lambda place: names[place] not in ALWAYS_RUN)
