"""The demo: real Envoy, real control plane, simulated model servers, on embedded defaults.

Read `script.run` first: it is the play; `stage` sets the scene, `acts` are its acts, `envoy` reads
what Envoy itself says, `screen` shows it, `summary` judges it.
"""
