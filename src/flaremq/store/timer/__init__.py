"""The files of the timer, in RocketMQ's formats.

    timerwheel       a slot for each second of two weeks: where its newest unit lies in the timer log
    timerlog/        a unit for each waiting message, with the position of the one before it in its slot
    timercheck       how far the wheel has been read, and the queue of waiting messages entered

The messages themselves lie in the commit log, in the topic rmq_sys_wheel_timer. The files follow from it:
what is lost or damaged here is made again.

timercheck  progress
timerfiles  the three together, opened, recovered and saved
timerlog    units, each found by its position
units       units, many a call (twin)
wheel       slots
"""
