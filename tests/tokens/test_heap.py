import subprocess
import sys
from pathlib import Path

import pytest

# Resident MiB after loading, in a process of its own.
MEASURE = """
import sys
from pathlib import Path
from sessions.tokens.tokenizer import load_tokenizer
tokenizer = load_tokenizer(sys.argv[1])
(line,) = [l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmRSS")]
print(int(line.split()[1]) // 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", ["pkg:qwen3", "folder"])
def test_a_loaded_tokenizer_leaves_room_for_the_server_in_a_shard(name: str, native_folder: Path):
    name = str(native_folder) if name == "folder" else name
    shown = subprocess.run(
        [sys.executable, "-c", MEASURE, name], check=True, capture_output=True, timeout=50
    )
    # 150 MiB is the budget of an idle shard; 71 measured here, 126 with what loading left behind.
    assert int(shown.stdout) < 100
