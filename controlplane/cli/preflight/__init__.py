"""What `trimtab check` does: `local` looks at this machine, `peers` asks the sources as `trimtab serve`
would, `judge` says what answers are worth.
"""
