"""HDF5 files of h5py users, MATLAB 7.3, other toolboxes and usdenoise."""
