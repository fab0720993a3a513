"""What gpu_table.py makes of a folder that gpu_check.sh has left, whole and with pieces missing."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../tools/baselines"))
import gpu_table  # noqa: E402

OURS = [
    {"test": "pp16", "n_gen": 0, "median_ms": None, "bytes_per_token": 1},
    {"test": "tg48 @ d464", "n_gen": 48, "median_ms": 4.0, "bytes_per_token": 15_000_000_000},
]
TORCH = {
    "torch": "2.11.0",
    "cases": [
        {"model": "Qwen3-8B", "batch": 1, "context": 512, "variant": "graph", "median_ms": 6.0,
         "bytes_per_step": 16_000_000_000},
        {"model": "Qwen3-8B", "batch": 1, "context": 512, "variant": "compiled", "median_ms": 5.0,
         "bytes_per_step": 16_000_000_000},
        {"model": "Qwen3-8B", "batch": 64, "context": 512, "variant": "compiled", "error": "it broke"},
    ],
}


class TableTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def put(self, name, content):
        with open(os.path.join(self.folder.name, name), "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))

    def put_all(self):
        self.put("commit.txt", "0123abc\n")
        self.put("command.txt", "tools/gpu_check.sh --out x\n")
        self.put("gpu_before.txt", "NVIDIA H200, 580.1\n")
        self.put("stream.json", {"median_gbs": 4000.0})
        self.put("torch.json", TORCH)
        self.put("ours_Qwen3-8B_b1_c512.json", OURS)
        self.put("ours_Qwen3-8B_b8_c512.json", OURS)
        self.put(
            "steps.tsv",
            "tests\t1\t30\ttest_cuda\n"
            "stream\t0\t3\tstream_limit\n"
            "ours_Qwen3-8B_b1_c512\t0\t20\tmegalith bench\n"
            "ours_Qwen3-8B_b8_c512\t124\t60\tmegalith bench\n"
            "torch\t0\t100\tpython3\n"
            "racecheck_model\tskipped\t0\tcompute-sanitizer\n",
        )

    def results(self):
        gpu_table.write(self.folder.name)
        with open(os.path.join(self.folder.name, "result.json"), encoding="utf-8") as file:
            return json.load(file), gpu_table.read_text(self.folder.name, "result.md")

    def test_prompts_beside_each_other(self):
        self.put_all()
        ours = [
            {"test": "pp512", "n_prompt": 512, "n_gen": 0, "avg_ns": 12_000_000, "multiply_share": 0.88},
            {"test": "pp2048", "n_prompt": 2048, "n_gen": 0, "avg_ns": 50_000_000, "multiply_share": 0.84},
            {"test": "tg48", "n_prompt": 0, "n_gen": 48, "avg_ns": 3_000_000},
        ]
        torch = [
            {"model": "Qwen3-8B", "tokens": 512, "ms": 18.0, "variant": "graph", "variants": []},
            {"model": "Qwen3-8B", "tokens": 2048, "variants": [{"variant": "eager", "error": "no memory"}]},
        ]
        self.put("prompt_Qwen3-8B.json", ours)
        self.put("prompt_Qwen3-0.6B.json", ours)
        self.put("prompt_torch.json", torch)
        with open(os.path.join(self.folder.name, "steps.tsv"), "a", encoding="utf-8") as file:
            file.write(
                "prompt_Qwen3-8B\t0\t9\tmegalith bench\n"
                "prompt_Qwen3-0.6B\t1\t9\tmegalith bench\n"
                "prompt_torch\t124\t60\tpython3\n"
            )
        result, text = self.results()
        self.assertEqual(len(result["prompts"]), 2)  # of 0.6B nothing: it did not end well
        self.assertEqual(result["prompts"][0]["ours_ms"], 12.0)
        self.assertIn("| Qwen3-8B | 512 | 12.00 | 88.0% | 18.00 (graph) | 1.50 |", text)
        self.assertIn("| Qwen3-8B | 2048 | 50.00 | 84.0% | – | – |", text)

    def test_shares_and_ratio(self):
        self.put_all()
        result, text = self.results()
        row = result["cases"][0]
        self.assertEqual((row["model"], row["batch"], row["context"]), ("Qwen3-8B", 1, 512))
        self.assertEqual((row["ours_ms"], row["torch_ms"], row["torch_variant"]), (4.0, 5.0, "compiled"))
        self.assertAlmostEqual(row["ours_share"], 1.0)  # 16 GB in 4 ms, of 4000 GB/s
        self.assertAlmostEqual(row["torch_share"], 0.8)
        self.assertAlmostEqual(row["speedup"], 1.25)
        self.assertIn("| Qwen3-8B | 1 | 512 | 16.00 | 4.000 | 100.0% | 5.000 (compiled) | 80.0% | 1.25 |", text)

    def test_without_pytorch_the_cache_counts_too(self):
        self.put_all()
        self.put("torch.json", {})
        result, _ = self.results()
        # Qwen3-8B: keys and values of 36 layers, 8 heads of 128 values, at the mean of the last 48 positions
        self.assertEqual(result["cases"][0]["bytes"], 15_000_000_000 + 2 * 2 * 36 * 8 * 128 * (512 - 24))

    def test_what_failed_has_no_figure(self):
        self.put_all()
        result, text = self.results()
        self.assertNotIn("ours_ms", result["cases"][1])  # it left a file, but did not end well
        self.assertIn("| Qwen3-8B | 8 | 512 | – | – | – | – | – | – |", text)
        self.assertIn("| Qwen3-8B | 64 | 512 | – | – | – | – | – | – |", text)
        self.assertEqual(result["cases"][2]["torch"][0]["error"], "it broke")
        self.assertIn("| tests | 30 | exit 1 |", text)
        self.assertIn("| ours_Qwen3-8B_b8_c512 | 60 | out of time |", text)
        self.assertIn("| racecheck_model | 0 | skipped: no time left |", text)

    def test_head_names_commit_command_card_and_limit(self):
        self.put_all()
        _, text = self.results()
        self.assertIn("Commit 0123abc. `tools/gpu_check.sh --out x`", text)
        self.assertIn("    NVIDIA H200, 580.1\n", text)
        self.assertIn("4000 GB/s", text)
        self.assertIn("PyTorch 2.11.0", text)

    def test_without_a_limit_there_are_no_shares(self):
        self.put_all()
        self.put("stream.json", "not JSON")
        result, _ = self.results()
        self.assertNotIn("ours_share", result["cases"][0])
        self.assertEqual(result["cases"][0]["speedup"], 1.25)

    def test_an_empty_folder(self):
        result, text = self.results()
        self.assertEqual(result["cases"], [])
        self.assertIn("PyTorch not run", text)


if __name__ == "__main__":
    unittest.main()
