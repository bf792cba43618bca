# SPDX-License-Identifier: Apache-2.0
"""Find personal data: e-mail addresses, phone numbers, cards, bank accounts and national ids."""
