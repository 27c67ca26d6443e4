"""What every bench, quality check and report shares, so that its figures can be trusted.

`run.Run` is the way in: it refuses what would spoil a measurement, takes down where and on what it
was made, keeps each cell as soon as it is measured, and writes one JSON file under results/.
"""
