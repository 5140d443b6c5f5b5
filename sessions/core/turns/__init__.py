"""Running a turn: prepare it, ask the engine, commit, deliver."""
