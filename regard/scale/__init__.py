"""Jobs that outgrow one process: files are translated in blocks by several processes, and a stopped job continues.

job            a whole job: which blocks are missing, who translates them, and what happens when a process dies
job_folder     the files of a job: its fingerprint, its parts, and the merged results
workers        a worker process as the job sees it
worker_loop    what a worker process does
blocks         blocks of lines and their results, and how they travel through pipes and files
"""
