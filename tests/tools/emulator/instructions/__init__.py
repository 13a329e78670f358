"""Single instructions with values worked out from AMD's ISA documents, by format."""
