"""flaremq pipeline. Spark is imported only when a command runs.

    archives  `archive`, `compact` and `replay`: topics to files, and files to topics
    commands  the command group
    demo      the second half of `flaremq demo`: orders in Spark, archived, counted, sent again and audited
    figures   `stats`: numbers about a store, topics or an archive
    progress  a running stream on one line
    recipes   `run` and `plan`: a pipeline of the user's own, from a YAML file
    stores    `rebuild` and `audit`: what is done with the files of a store
    work      spark for one command: opened with little noise, watched while it works, and its errors in one
              line
"""
