"""Every host of a job is asked what it has and checked, before anything is started."""
