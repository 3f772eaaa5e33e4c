"""Work that outgrows one process or one machine: jobs over many files, and datasets of Ray.

job            a whole job: which blocks are missing, and how far it is
job_folder     the files of a job: its fingerprint, its parts, and the merged results
pool           who translates which block, and what happens when a worker dies
workers        a worker process of this machine as the job sees it
worker_loop    what a worker process does
ray_workers    workers on the machines of a Ray cluster
blocks         blocks of lines and their results, and how they travel through pipes and files
dataset        a column of a dataset of Ray Data
"""

from regard.scale.dataset import translate_dataset

__all__ = ["translate_dataset"]
