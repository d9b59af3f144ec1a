"""What N ranks would do on a network: a cost model of data-parallel training. Pure; seconds and bytes."""
