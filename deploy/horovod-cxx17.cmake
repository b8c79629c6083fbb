# CMake reads this as the toolchain file and again after each project() call.
set(CMAKE_PROJECT_INCLUDE "${CMAKE_CURRENT_LIST_FILE}")
# Horovod asks for C++14; the headers of current torch need C++17.
set(CMAKE_CXX14_STANDARD_COMPILE_OPTION "-std=c++17")
