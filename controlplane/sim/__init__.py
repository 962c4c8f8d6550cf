"""Level 2: simulated model servers and the load for them, for the demo, tests, and trying strategies.

::

    cache       which prompt prefixes are in the KV cache (pure)
    engine      the timing model: queue, batch, prefill, decode (pure; time comes in as an argument)
    conductor   plays an engine in real time on the event loop
    exposition  vLLM's metrics
    openai      requests and answers, as OpenAI's API has them
    server      the HTTP face of one server, and the switch for its faults
    fleet       several servers in one process
    command     `trimtab sim-server`
    load        session-keyed open-loop load
    report      what the load saw, in figures (pure)
"""
