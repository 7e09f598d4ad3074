"""The settings of an optimiser's groups (the learning rate above all), by step. A schedule may change them at once when
step() returns, while the library still needs those of the step: for updates that it asks for, and for residuals of
codecs, which keep the weight of the step that they come from."""
import bisect
import math
import warnings

import torch

STEPS_KEPT = 1024  # changes; older steps get the settings of the oldest


def copied(groups):
    """A rate that is a tensor is changed in place."""
    return [{key: value.clone() if isinstance(value, torch.Tensor) else value
             for key, value in group.items() if key != "params"} for group in groups]


def rates_of(settings):
    return [float(group.get("lr", 1)) for group in settings]


class Settings:
    """record() is called once in a step, before its first gradient is handed over; at() and rate() by the driver's
    thread, too. Steps after the last recorded one have its settings: those that a faster rank pushes to a server."""

    def __init__(self, groups, first_step, rate_before):
        """rate_before: that of the step before the first one; None: the present."""
        self.largest = max(range(len(groups)), key=lambda g: sum(p.numel() for p in groups[g]["params"]))
        self.steps, self.settings, self.reported = [first_step], [copied(groups)], False
        self.before = rates_of(self.settings[0])[self.largest] if rate_before is None else rate_before

    def record(self, step, groups):
        now = copied(groups)
        if now == self.settings[-1]:
            return
        self.compare(rates_of(self.settings[-1]), rates_of(now))
        self.settings.append(now)
        self.steps.append(step)  # last: a reader looks here first
        if len(self.steps) > STEPS_KEPT:
            self.before = rates_of(self.settings[0])[self.largest]
            self.steps, self.settings = self.steps[1:], self.settings[1:]

    def compare(self, before, now):
        """One rate serves for all residuals, as long as all change by the same factor."""
        growths = [new / old for old, new in zip(before, now) if old > 0 and new > 0]
        if self.reported or not growths or math.isclose(min(growths), max(growths), rel_tol=1e-6):
            return
        self.reported = True
        warnings.warn(f"the learning rates of the groups change by different factors ({min(growths):.4g} to "
                      f"{max(growths):.4g}): a codec's residuals are scaled by that of group {self.largest}, the largest")

    def at(self, step):
        """The settings of each group."""
        return self.settings[max(bisect.bisect_right(self.steps, step) - 1, 0)]

    def rate(self, step):
        """That of the largest group."""
        return self.before if step < self.steps[0] else rates_of(self.at(step))[self.largest]
