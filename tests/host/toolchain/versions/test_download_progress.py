"""uv's lines about downloads, in bytes with the time left."""

from convkit.host.toolchain.versions.download_progress import Downloads


def test_downloads_are_told_in_bytes_with_the_time_left() -> None:
    now = iter([0.0, 10.0, 20.0])
    downloads = Downloads(lambda: next(now))
    assert downloads.heard("Resolved 5 packages in 270ms") is None
    assert downloads.heard("Downloading onnx (50.0MiB)") == "downloading 52 MB, 0 MB done: onnx"
    assert downloads.heard("Downloading torch (0.1GiB)") == (
        "downloading 160 MB, 0 MB done: onnx, torch"
    )
    told = downloads.heard(" Downloaded onnx")
    assert told == "downloading 160 MB, 52 MB done, about 20 s left: torch"
    assert downloads.heard(" Downloaded torch") == "downloading 160 MB, 160 MB done"
    assert downloads.heard("Prepared 5 packages in 532ms") == "installing 5 packages"
    assert downloads.heard(" + onnx==1.23.2") is None
