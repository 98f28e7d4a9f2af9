# Unit tests of base and control_pipe; the other modules' tests are in their own CMakeLists.
muster_test(common_test
  SOURCES base/backoff_test.cc base/clock_test.cc base/failpoint_test.cc base/file_lock_test.cc base/files_test.cc base/host_peak_test.cc base/hub_id_test.cc base/proc_reader_test.cc base/regular_file_test.cc
    base/locked_record_test.cc base/replace_file_test.cc
    base/boxed_test.cc base/open_files_test.cc base/status_test.cc base/switch_test.cc base/text_test.cc base/byte_size_test.cc base/thread_priority_test.cc base/unique_fd_test.cc
    base/wall_time_test.cc
    control_pipe/packet_socket_test.cc control_pipe/progress_page_test.cc control_pipe/training_figures_test.cc
  DEPS muster_base muster_control_pipe Threads::Threads)
