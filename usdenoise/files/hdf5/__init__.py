"""HDF5 files: those of h5py users, of MATLAB 7.3, of other toolboxes, and our own."""
