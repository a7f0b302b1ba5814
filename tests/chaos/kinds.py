"""The kinds of faults by name: ids of the catalogue that each checks, what it needs, and the function that makes one trial."""
import collections

import file_faults
import host_faults
import machine_faults
import process_faults

Kind = collections.namedtuple("Kind", "ids needs fault")

IDS = {"K1": "one rank is killed, with restarts", "K2": "the launcher is killed", "K3": "several ranks are killed at once",
       "K4": "a rank crashes, or leaves with success or an error", "K5": "the same rank dies in every attempt", "K6": "nothing is left (checked after every run)",
       "H1": "a rank is stopped for good", "H2": "a rank is stopped for a while or for good, with restarts", "D1": "all ranks are halted for moments",
       "N1": "NaN or infinity in a loss, activation, gradient, parameter", "C1": "a process dies before a call on files",
       "C3": "calls on files fail, the disk is small or full", "C4": "checkpoints are damaged", "C7": "two jobs in one folder", "P1": "SIGTERM",
       "P2": "SIGTERM, then another or SIGKILL", "R1": "too little memory", "R2": "few descriptors, short files, little /dev/shm", "R3": "one rank is slow",
       "R4": "the link between two hosts is out", "R5": "the wall clock jumps", "L1": "every sample once, after a kill",
       "S1": "nothing listens for other hosts (one host alone)", "S2": "strangers at the ports of a job", "S4": "crafted checkpoints, odd names of folders",
       "S5": "crafted models and tokenizers", "X1": "several faults one after another", "X2": "doctor names the cause of a failed run"}

KINDS = {
    "kill": Kind(("K1",), None, process_faults.kill),
    "kill-launcher": Kind(("K2",), None, process_faults.kill_launcher),
    "kill-several": Kind(("K3",), None, process_faults.kill_several),
    "crash": Kind(("K4",), None, process_faults.crash),
    "leave-early": Kind(("K4",), None, process_faults.leave_early),
    "crash-loop": Kind(("K5",), None, process_faults.crash_loop),
    "stop": Kind(("H1",), None, process_faults.stop),
    "stop-and-survive": Kind(("H2",), None, process_faults.stop_and_survive),
    "jitter": Kind(("D1",), None, process_faults.jitter),
    "slow": Kind(("R3",), None, process_faults.slow),
    "term": Kind(("P1",), None, process_faults.term),
    "term-and-more": Kind(("P2",), None, process_faults.term_and_more),
    "two-jobs": Kind(("C7",), None, process_faults.two_jobs),
    "once-each": Kind(("L1",), None, process_faults.once_each),
    "mixed": Kind(("X1",), None, process_faults.mixed),
    "io-error": Kind(("C3",), None, file_faults.io_error),
    "torn-write": Kind(("C1",), None, file_faults.torn_write),
    "small-disk": Kind(("C3",), "root", file_faults.small_disk),
    "filled-disk": Kind(("C3",), "root", file_faults.filled_disk),
    "damaged-checkpoint": Kind(("C4",), None, file_faults.damaged_checkpoint),
    "crafted": Kind(("S4", "S5"), None, file_faults.crafted),
    "odd-names": Kind(("S4",), None, file_faults.odd_names),
    "not-finite": Kind(("N1",), None, machine_faults.not_finite),
    "data-limit": Kind(("R1",), None, machine_faults.data_limit),
    "memory-group": Kind(("R1",), "root", machine_faults.memory_group),
    "few-descriptors": Kind(("R2",), None, machine_faults.few_descriptors),
    "short-files": Kind(("R2",), None, machine_faults.short_files),
    "little-shm": Kind(("R2",), "root", machine_faults.little_shared_memory),
    "clock-jumps": Kind(("R5",), None, machine_faults.clock_jumps),
    "link-flaps": Kind(("R4",), "root", host_faults.link_flaps),
    "link-cut": Kind(("R4",), "root", host_faults.link_is_cut),
    "stranger": Kind(("S2",), "root", host_faults.stranger_at_the_door),
}
