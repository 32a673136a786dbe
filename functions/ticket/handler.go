package function
