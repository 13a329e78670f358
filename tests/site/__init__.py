"""The pages as a web site: built as CONTRIBUTING.md says, read as files, and opened in a browser."""
