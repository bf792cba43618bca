# SPDX-License-Identifier: Apache-2.0
"""What every `Store` must do, as tests to inherit. Needs pytest.

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self) -> Iterator[Store]:     # a fresh one for every test; a fixture of the module does as well
            made = MyStore(...)
            yield made
            made.close()

The tests speak to the store through its protocol and the named statements the engine uses, and to nothing else. A new promise of
the protocol gets its test here, and so does every bug of a store that another store could have.
"""

from __future__ import annotations

from redrive.testing.conformance.claims import ClaimTests
from redrive.testing.conformance.dependencies import DependencyTests
from redrive.testing.conformance.histories import HistoryTests
from redrive.testing.conformance.leases import LeaseTests
from redrive.testing.conformance.letters import LetterTests
from redrive.testing.conformance.named_statements import MomentTests, StatementTests
from redrive.testing.conformance.replays import DrivenReplayTests, ReplayTests
from redrive.testing.conformance.runs import RunTests
from redrive.testing.conformance.settlements import SettlementTests
from redrive.testing.conformance.side_effects import SideEffectTests
from redrive.testing.conformance.submissions import SubmissionTests
from redrive.testing.conformance.uniform_batches import UniformBatchTests
from redrive.testing.conformance.upkeep import UpkeepTests

__all__ = ["StoreConformance"]


class StoreConformance(
    SubmissionTests,
    ClaimTests,
    SettlementTests,
    UniformBatchTests,
    SideEffectTests,
    LeaseTests,
    StatementTests,
    MomentTests,
    ReplayTests,
    RunTests,
    LetterTests,
    DependencyTests,
    UpkeepTests,
    DrivenReplayTests,
    HistoryTests,
):
    """Every test of the suite. Inherit it in a class whose name starts with Test, and give it a fixture `store`."""
