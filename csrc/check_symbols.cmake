# Fails if a kernel unit exports more than its table: a shared inline function would carry wide instructions to CPUs that lack them.
# Usage: cmake -DNM=nm -DOBJECTS=a.o,b.o -P check_symbols.cmake
string(REPLACE "," ";" OBJECTS "${OBJECTS}")
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND "${NM}" -C --defined-only --extern-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "[^\n]* octavo::[a-z0-9_]+::kTable\n" "" others "${symbols}")
  if(NOT others STREQUAL "")
    message(FATAL_ERROR "${object} exports more than kTable:\n${others}")
  endif()
endforeach()
