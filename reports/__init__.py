"""Everything a person reads: verdicts, tables, pages, and the ledger they come from."""
