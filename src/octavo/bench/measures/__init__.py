"""What a load run comes to: latencies, throughput, SLOs kept and missed, and how sure of it one can be."""
