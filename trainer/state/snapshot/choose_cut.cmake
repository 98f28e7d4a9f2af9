# Apart, since the simulation of the control plane makes the trainer's choice too, without the trainer.
if(NOT TARGET muster_choose_cut)
  muster_library(muster_choose_cut SOURCES "${CMAKE_CURRENT_LIST_DIR}/choose_cut.cc" DEPS muster_base)
endif()
