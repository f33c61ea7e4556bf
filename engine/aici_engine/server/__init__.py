"""`aici serve`: an API process that speaks the protocols, and an engine process that runs the model.

A request comes in at the top and goes down; events come back up the same way.

    API process
      api/              serve.py starts and stops the server; app.py puts the ASGI application together
      gateway/          every request: id and access log, route policy, API key and rate, size and time limits, errors
      batches/          files of requests, answered when there is room: a line passes the same code as a request
      protocols/        openai, anthropic, rest, lmtp: parse a request, write the response; chat: a turn with tools
      service/          every protocol: Models finds and loads a model by its name; its Service tokenizes, checks
                        constraints, admits, and opens a stream of events
    between the processes
      fleet/            a model with replicas: chooses the engine process of a stream, moves streams, drains, scales
      link/             wire.py defines the messages; client.py is the API side, supervisor.py starts the engine process
      remote/           an engine on another machine: its host there, and the API process's connection to the host
    engine process
      engine_process/   main.py; engine_server.py answers the wire; runtime_keeper.py restarts a dead runtime
    both processes
      telemetry/        logs; in the API process also metrics, traces and the record of a request
      errors.py         errors that only a server has, and the HTTP status of every error
      config.py         ServerConfig and RequestLimits

Import rules (checked by import-linter, pyproject.toml): each room imports only rooms below it, in the order api >
batches > protocols > gateway > service > errors > telemetry > fleet, remote > link > config; engine_process imports
telemetry, link and config, and is imported by nobody; one protocol does not import another.

To add an endpoint, see api/app.py. To add a message between the processes, see link/wire.py.
"""
