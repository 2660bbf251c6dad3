"""From files, suites and KEY=VALUE words to validated requests, each value with its origin."""
