"""The Spark job of ``test_spark.py``: a stream from Kafka, filtered, and the best of its matches.

It runs in a process with PySpark on its path: ``spark_job.py JOB``, a file of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from heliograph.alerts import spark as alerts_spark


def session(job: dict[str, Any]) -> SparkSession:
    """Three executors, each a JVM of its own with one core."""
    builder = SparkSession.builder.appName("heliograph").master("local-cluster[3,1,1024]")
    options = {
        "spark.jars": ",".join(job["jars"]),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "768m",
        # Tasks are spread over all executors, not sent to the first one that is free.
        "spark.locality.wait": "0s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.sql.shuffle.partitions": "3",
        "spark.ui.enabled": "false",
        "spark.executorEnv.PYTHONPATH": job["python_path"],
        "spark.local.dir": str(Path(job["folder"]) / "local"),
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def executor_tasks(spark: SparkSession) -> dict[str, int]:
    """Return the number of tasks that each executor has completed."""
    executors: Any = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    every = [executors.apply(n) for n in range(executors.size())]
    return {one.id(): one.totalTasks() for one in every if one.id() != "driver"}


def main() -> None:
    """Run the job, and write its results beside its description."""
    job = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(job["folder"])
    spark = session(job)
    source = spark.readStream.format("kafka").option("subscribe", job["topic"])
    source = source.option("kafka.bootstrap.servers", job["broker"])
    source = source.option("startingOffsets", "earliest")
    packets = source.option("maxOffsetsPerTrigger", str(job["packets_per_batch"])).load()
    matches = alerts_spark.match(packets, job["filters"])
    writer = matches.writeStream.format("parquet").option("path", str(folder / "matches"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    stored = spark.read.schema(alerts_spark.MATCHES).parquet(str(folder / "matches"))
    chosen = alerts_spark.best(stored.repartition(7))
    report = {
        "matches": [row.asDict() for row in stored.collect()],
        "best": [row.asDict() for row in chosen.collect()],
        "batches": query.lastProgress["batchId"] + 1 if query.lastProgress else 0,
        "executors": executor_tasks(spark),
    }
    (folder / "report.json").write_text(json.dumps(report))
    spark.stop()


if __name__ == "__main__":
    main()
