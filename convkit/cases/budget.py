"""What a verification may cost: predicts a case's time from those that ran."""

from collections.abc import Sequence

# These run whatever they cost: they are small or typical in size, and hold the mistakes most often
# made.
ALWAYS_RUN = ("smallest", "padded", "masked-row")


class Budget:
    """Seconds of inference that may be spent, and what has been learned about the time of a case.

    The time of a case is taken to be linear in its cost (elements of its inputs and outputs):
    through the origin while one cost is measured, the least-squares line after. Attention grows
    faster than that, so a prediction far above the measured sizes is low, and one case may overrun;
    the next is then omitted.
    """

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self.spent = 0.0
        self._measured: list[tuple[int, float]] = []

    def record(self, cost: int, seconds: float) -> None:
        """Note what a case took."""
        self.spent += seconds
        self._measured.append((cost, seconds))

    def predict(self, cost: int) -> float:
        """Return the seconds a case of that cost is expected to take; 0 while nothing
        is measured.
        """
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
        """Return why a case is not run, or None where it is."""
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
    """Return the places of the cases in the order they run under a budget: what always runs comes
    first.

    The predictions for the others then rest on more than the smallest case.
    """
    return sorted(range(len(names)), key=lambda place: names[place] not in ALWAYS_RUN)
