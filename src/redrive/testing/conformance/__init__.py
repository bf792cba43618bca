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

from redrive.testing.conformance.changing import Changing
from redrive.testing.conformance.claiming import Claiming
from redrive.testing.conformance.companions import Companions
from redrive.testing.conformance.crowds import Crowds
from redrive.testing.conformance.leasing import Leasing
from redrive.testing.conformance.replaying import Replaying
from redrive.testing.conformance.settling import Settling
from redrive.testing.conformance.submitting import Submitting

__all__ = ["StoreConformance"]


class StoreConformance(Submitting, Claiming, Settling, Crowds, Companions, Leasing, Changing, Replaying):
    """Every test of the suite. Inherit it in a class whose name starts with Test, and give it a fixture `store`."""
